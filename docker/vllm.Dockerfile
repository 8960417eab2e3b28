# vLLM on a GPU with LMCache's connector, and DaseR's where a checkout is given as
# the build context "daser". Built by scripts/images.sh; the versions are those of
# harness/recipe/files/versions.toml.
ARG VLLM=0.32.0
FROM vllm/vllm-openai:v${VLLM}
ARG LMCACHE=0.5.6
RUN pip install --no-cache-dir "lmcache==${LMCACHE}"
COPY --from=daser / /opt/daser
RUN if [ -f /opt/daser/pyproject.toml ]; then pip install --no-cache-dir /opt/daser; fi
ENV VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_SERVER_DEV_MODE=1 PYTHONHASHSEED=0
ENTRYPOINT ["vllm"]
