# LMCache's multiprocess server, out of the image of the engine: both sides of the
# shared memory then run the same version.
ARG VLLM=0.32.0
FROM kvproof/vllm:${VLLM}
ENV LMCACHE_TRACK_USAGE=false PYTHONHASHSEED=0
ENTRYPOINT ["lmcache"]
