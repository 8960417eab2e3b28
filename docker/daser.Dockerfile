# DaseR's server, from a checkout that the user names (DASER=PATH make images).
ARG VLLM=0.32.0
FROM kvproof/vllm:${VLLM}
ENTRYPOINT ["python3", "-m", "daser.server"]
