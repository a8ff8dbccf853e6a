"""What commits and passes report: facts for metrics and spans, lines for logs."""
