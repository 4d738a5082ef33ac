"""Pure tests of the fitter."""
