"""The real session: clients of a controller, in this process or elsewhere, whose computations run on devices."""
