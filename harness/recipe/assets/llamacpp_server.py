"""Serves a GGUF file with llama.cpp's own HTTP server out of the xllamacpp
wheel, on loopback, until it is told to end. One thread and float32 KV without
flash attention: equal inputs give equal tokens, and logprobs that differ by
rounding alone. A second thread would wait for the first by spinning."""

import argparse
import os
import signal
import threading

import xllamacpp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--alias", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--slots", type=int, default=2)
parser.add_argument("--context", type=int, default=4096, help="tokens of one slot")
parser.add_argument("--slot-dir", required=True)
parser.add_argument("--host-cache-mib", type=int, default=2048)
parser.add_argument("--no-prompt-cache", action="store_true", help="compute every prompt from its first token")
options = parser.parse_args()

end = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: end.set())

params = xllamacpp.CommonParams()
params.model.path = options.model
params.model_alias = {options.alias}
params.hostnames = ["127.0.0.1"]
params.port = options.port
params.n_parallel = options.slots
params.n_ctx = options.slots * options.context
params.kv_unified = False
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.cache_ram_mib = options.host_cache_mib
params.cache_prompt = not options.no_prompt_cache
params.endpoint_metrics = True
params.endpoint_slots = True
params.ui = False
os.makedirs(options.slot_dir, exist_ok=True)
params.slot_save_path = os.path.join(options.slot_dir, "")  # must end with a slash

server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
while not end.wait(1):
    pass
os._exit(0)  # the server's threads have no end of their own
