"""Instruments of developers, run from the top of a clone as `python -m tools.NAME`; in the sdist, not in the wheel.

costs         passes (pass_costs, transformers_passes), random_peers, expert_costs, slow_experts, recurrent_costs,
              long_context, packed_products, weight_formats, cold_start, kv_restart, joint_streams, first_bytes;
              random_models makes networks of a shape
drafting      loop_speed, loop_check, schema_speed, plot_bench, load_changes (burner), synthetic_acceptance,
              record_traces, replay_chooser
quality       perplexity, model_zoo (zoo_networks), forced_calls, router_accuracy, loop_rates
edits         edit_table (edit_cases), measure_edits, measure_refactorings, replay_edits (move_method), answer_styles,
              contract_table, refactoring_cases, sketch_table, measure_named_operations,
              measure_rewrites, completion_latency
pictures      draw_concepts, draw_packages, draw_screens (screen_walk, screen_driver, terminal_picture)
servers       real_servers (its checks, faults, starts and screen; llama_server), server_race, client_suites
the project   check_language, try_wheel, fault_runs; instrument runs a command of this folder

They measure with the plugin specchat-bench, which lies beside them and need not be installed.
Tests: `pytest tools/tests`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "plugins" / "specchat-bench"))
