"""Is this machine in order? Nothing is timed but the bandwidth of main memory.

health_checks   the checks of `specchat doctor`

What compares texts and measures speed is the plugin specchat-bench; the instruments of developers are in tools/.
"""
