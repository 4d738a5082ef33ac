"""The main job, end to end, in one process: a mixed fleet, hundreds of builds, one crash."""
