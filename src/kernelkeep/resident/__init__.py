"""HOW, without launching: a grid that stays on the device and takes tasks from a ring in mapped memory."""
