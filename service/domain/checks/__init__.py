"""What a draft must pass before it becomes a record; pure functions over texts."""
