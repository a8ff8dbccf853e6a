"""Reading of text, pure: words, identifiers, secrets, look-alikes, markup, tool errors; no rule of the product."""
