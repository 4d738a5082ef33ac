"""Where on a host a guest fits: `fit_guest` is the way in, the rest are its algorithms."""
