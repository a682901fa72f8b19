"""The command `penstock`: a sub-package for each thing the user works on."""
