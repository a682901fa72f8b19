"""Strategy `deadline`: as few workers as the promise allows."""
