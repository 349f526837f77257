"""`specchat doctor --gpu`: what a GPU computes, exactly and how fast, in one report to send back. No model is needed.

sections    the table of all sections; facts of the device, what no kernel can undercut, drafted and plain text
kernels     our kernels, the products of each format and the sampler: error, bits, microseconds, share of the bandwidth
networks    networks of noise, made on the device: their passes in each format, and the draft tree of an EAGLE-3 head
gpu_bench   the device: sizes to try, buffers, times by CUDA events over captured graphs
report      sections that fail by themselves; the table and the JSON
"""
