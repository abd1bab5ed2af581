#!/bin/bash
# Where no GPU is, or none that works, scripts/gpu-check.sh ends at once with the reason, and leaves
# no results.
#
#   gpu_check_test.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
folder=$1
rm -rf "$folder"
mkdir -p "$folder/none" "$folder/broken"
for tool in bash dirname mkdir; do ln -s "$(command -v "$tool")" "$folder/none"; done
cp -r "$folder/none/." "$folder/broken"
printf '#!/bin/bash\necho "NVIDIA-SMI has failed"\nexit 9\n' >"$folder/broken/nvidia-smi"
chmod +x "$folder/broken/nvidia-smi"

# refuses TOOLS ARGUMENTS TEXT: with these tools alone the script exits with 2 and says TEXT.
refuses() {
  local said status
  # shellcheck disable=SC2086
  said=$(timeout 10 env PATH="$folder/$1" scripts/gpu-check.sh --out "$folder/out" $2 2>&1)
  status=$?
  if ((status != 2)) || [[ $said != *"$3"* ]] || [[ -e $folder/out ]]; then
    echo "FAILED with tools '$1', arguments '$2': exit code $status, '$said'"
    failed=1
  fi
}
failed=0
refuses none "" "no nvidia-smi"
refuses broken "" "nvidia-smi finds no GPU"
refuses broken "--second" "nvidia-smi finds no GPU"
refuses none "profiles" "'profiles' is not a step"
exit $failed
