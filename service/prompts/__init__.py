"""The questions that a model is asked: templates, what fills them, and what of an answer is a title."""
