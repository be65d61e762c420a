"""What a host does, whatever carries its packets: shared by the endpoint and the simulator."""
