"""Images and pieces of HTML."""
