# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
# Runs in the build container of the base image (bash -euo pipefail), where lab/up sets:
#   UV, NEWER     the installer and the newer transformers, pinned
#   UV_ARGUMENTS  where this machine gets its packages from
#   CUDA_TORCH_GB what the base image takes on disk, with its copies, where torch comes with CUDA's libraries
# /opt/newer, /opt/model and /mnt/wheels* are mounted, and do not become part of the image.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt UV_HTTP_TIMEOUT=180 UV_CACHE_DIR=/mnt/uv/cache
packages() { dpkg-query -W -f '${Package}\n' | sort; }

echo "installing system packages"
apt-get -qq update
apt-get -qq install -y --no-install-recommends libnuma1 >/dev/null # vLLM's kernels load it
before=$(packages)
apt-get -qq install -y --no-install-recommends binutils >/dev/null

python3 -m venv /opt/engines
python=/opt/engines/bin/python
site=/opt/engines/lib/python3.11/site-packages
python3 -m venv /mnt/uv # beside its cache in the same file system, so that files are linked and not copied
/mnt/uv/bin/pip install --quiet "$UV"
eval "set -- $UV_ARGUMENTS"
install() { /mnt/uv/bin/uv pip install --quiet --python "$python" "$@"; }

requirements=/opt/lab/requirements.txt
if ! install "$@" --no-deps --dry-run "$(grep '^torch==' "$requirements")" 2>/dev/null; then
  # PyPI has no CPU build of torch, and its own one runs on a CPU as well, with CUDA's libraries beside it.
  free=$(($(df --output=avail --block-size=1G / | tail -n 1)))
  if [ "$free" -lt "$CUDA_TORCH_GB" ]; then
    echo "no CPU build of torch was found, and the one with CUDA's libraries needs $CUDA_TORCH_GB GB of disk, of which $free GB are free"
    exit 1
  fi
  echo "installing torch with CUDA's libraries (about 3 GB), since no CPU build was found"
  sed -i 's/^\(torch==.*\)+cpu$/\1/' "$requirements"
  install "$@" --constraint "$requirements" "$(grep '^torch==' "$requirements")"
fi

echo "installing the engines"
install "$@" --no-deps -r "$requirements"

echo "installing the shims"
cp -r /opt/lab/shims/*/ "$site/"
cat /opt/lab/shims/torchvision_extension_end.py >> "$site/torchvision/extension.py"

echo "leaving out what no engine needs at run time"
cd "$site"
find torch/bin -type f ! -name torch_shm_manager -delete
rm -rf torch/test torch/include triton/backends/nvidia/bin triton/backends/nvidia/lib triton/instrumentation \
  triton/_C/libproton.so
find pandas scipy numba pyarrow sympy networkx jedi llvmlite ray \( -name tests -o -name test \) -type d -prune -exec rm -rf {} +
for library in triton/_C/libtriton.so torch/lib/libtorch_cpu.so torch/lib/libtorch_python.so vllm/_C*.so ray/_raylet.so cv2/*.so; do
  strip --strip-unneeded "$library"
done
cd /

# Loading each engine's parts once leaves the byte code of what is really used, which is far less than all of it. It
# takes the newer transformers: SGLang cannot even be imported beside the old one.
echo "loading the engines once"
# shellcheck disable=SC2086 # a list
install "$@" --no-deps --target /opt/newer $NEWER
PYTHONPATH=/opt/newer "$python" - <<'END'
import importlib
import sys

for name in """
    transformers.models.qwen3_5_moe.modeling_qwen3_5_moe ray.scripts.scripts ray._private.workers.default_worker
    vllm.entrypoints.cli.main vllm.entrypoints.openai.api_server vllm.v1.engine.core vllm.v1.worker.cpu_worker
    vllm.v1.executor.ray_executor vllm.model_executor.models.qwen3_5 lab_shims.vllm_communicator
    sglang.launch_server sglang.srt.entrypoints.http_server sglang.srt.managers.scheduler sglang.srt.models.qwen3_5
""".split():
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
        if name.startswith(("transformers", "ray.scripts", "vllm.entrypoints", "sglang.launch")):
            sys.exit(1)
END

packages | comm -13 <(echo "$before") - | xargs apt-get -qq purge -y >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /opt/lab/shims /mnt/uv
mkdir -p /workspace
echo "checking"
"$python" - <<'END'
import importlib.metadata

import torch
from vllm.platforms import current_platform

current_platform.import_kernels()
assert torch.ops._C.init_cpu_memory_env, "vLLM's CPU kernels were not loaded"
print({name: importlib.metadata.version(name) for name in ("torch", "transformers", "ray", "vllm", "sglang", "triton")})
END

make_model() {
  echo "making the model"
  PYTHONPATH=/opt/newer "$python" /mnt/make_model.py /opt/model
  rm /mnt/make_model.py
}
