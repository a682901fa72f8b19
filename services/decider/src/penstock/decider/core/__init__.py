"""Pure: values and `now` in, values out."""
