"""What brings a link, or an endpoint, into a state, and proves that it is in that state.

Each actuator works from whatever state a place is in to the one asked for, on many places at once
where that is quicker. What several faults add up to is decided by `places`.
"""
