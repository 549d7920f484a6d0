"""Studies of robot policies: cameras, gaze, searches and trainers."""
