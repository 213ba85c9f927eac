# Workers of farspan for Beam's engines:
#   docker build -t farspan .
#   docker run --network=host --entrypoint farspan-worker farspan --worker_pool      a pool beside a Flink TaskManager
# Engines that start containers themselves (--environment_type=DOCKER, Dataflow) call Beam's boot program, the entry point
# of Beam's image. It would read another program's name as an argument of its own, hence --entrypoint.
# The image of Beam and the package must have one version, and the Python of the driver.
ARG BEAM=2.77.0
ARG PYTHON=3.11
FROM apache/beam_python${PYTHON}_sdk:${BEAM}
ARG BEAM
# PyTorch without CUDA; for workers that embed on a GPU give --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=pipelines,linked,s3
# All is installed for the image's own Python; without this, Beam's boot program makes an environment at each start.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
COPY . /src/farspan
RUN pip install --no-cache-dir --index-url "${TORCH_INDEX}" --extra-index-url https://pypi.org/simple 'torch >= 2.13, < 2.16' \
 && pip install --no-cache-dir "apache-beam==${BEAM}" "/src/farspan[${EXTRAS}]" \
 && rm -rf /src/farspan
