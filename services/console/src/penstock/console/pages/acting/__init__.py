"""Acting from pages: which acts there are, who may do them, and their confirmation."""
