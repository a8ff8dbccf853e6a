"""Every setting, and where its value comes from."""
