"""Pictures and pieces of HTML."""
