"""JSON of hosts, flavors, images, guests and placements: what is accepted, and both ways of it."""
