"""Pure tests of filters, weighers and claims."""
