"""The reward lab: before a launch, a few groups of the form's task from its model, scored by its rewards."""
