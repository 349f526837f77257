"""`specchat doctor --gpu`: what a GPU computes, exactly and how fast, in one report to send back. No model is needed.

report           sections, each of which may fail by itself; the table and the JSON
gpu_bench        the device: sizes to try, buffers, times by CUDA events over captured graphs
device_facts     names, versions, clocks, copy bandwidth, what a launch and a wait cost
kernel_checks    a kernel for each number of rows: error, bits, microseconds, share of the bandwidth
own_kernels      our Triton kernels as such checks
linear_layers    the products of each format of weights as such checks, and the sampler
random_network   networks whose weights are noise, made on the device
network_passes   passes of such a network in each format, captures, and the draft tree of an EAGLE-3 head
catalog_models   the models that are recommended first, at tiny size; the embedded model, drafted and plain
sections         the list of all
"""
