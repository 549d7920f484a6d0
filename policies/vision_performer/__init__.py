"""Vision-Performer policies: a Transformer over patches, with energies or pooled."""
