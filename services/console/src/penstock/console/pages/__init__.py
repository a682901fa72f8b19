"""The web pages: one module for each page or for pages that belong together."""
