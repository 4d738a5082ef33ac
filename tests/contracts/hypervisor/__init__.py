"""What every hypervisor promises: one suite, run on the simulated one and on real libvirt."""
