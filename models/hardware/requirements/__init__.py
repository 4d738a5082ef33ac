"""What a flavor and an image require of a guest: keys read, checked and combined."""
