# Trains in a container, with PyTorch's CPU build; runs/ is kept in a volume:
#   docker build -t foveate .
#   docker run --rm -v foveate-runs:/foveate/runs foveate
# Another command stands in the place of the last line's:
#   docker run --rm -v foveate-runs:/foveate/runs foveate python -m training.rollout stepping_stones
# No test builds it.
FROM python:3.11-slim

ENV OMP_NUM_THREADS=1 MPLBACKEND=Agg PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /foveate

COPY constraints.txt .
RUN pip install -c constraints.txt torch --index-url https://download.pytorch.org/whl/cpu
COPY . .
RUN pip install -c constraints.txt -e ".[sim,train,video]"

RUN useradd --create-home foveate && mkdir -p runs && chown foveate runs
USER foveate
# What Numba compiles is kept.
RUN python -c "import gymnasium, envs; env = gymnasium.make(envs.STEPPING_STONES); env.reset(); \
    env.step(env.action_space.sample())"
CMD ["python", "-m", "training.es"]
