"""URDF files and meshes of our own; README.md here says where each comes from."""
