"""The words the model gets: templates, instruction cards and worked examples."""
