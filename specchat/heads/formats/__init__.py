"""Published head formats, one family per file. Each knows tensor names and config keys, and computes nothing.

head_checkpoint.py                  tensors and config of a checkpoint, and what all formats read from them
eagle1_format.py eagle3_format.py   EAGLE-1 and EAGLE-2; EAGLE-3 and P-EAGLE
mtp_format.py                       multi-token prediction, with
  mla_format.py moe_format.py         the sizes of MLA and of a mixture of experts
medusa_format.py hydra_format.py    Medusa; Hydra and Hydra++
dflash_format.py                    DFlash, DFlash-2 and DSpark
assistant_format.py                 assistants of Gemma 4
unsupported.py                      formats that are recognized only
"""
