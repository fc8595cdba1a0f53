"""Other libraries' compiled programs in our cache: verified, signed, bounded, and compiled once for many processes.

Each module here is the door of one library and is imported only where it is asked for: `kernelkeep.guests.triton`, and so on.
"""
