-- Module file for Lmod. It lies in PREFIX/share/modulefiles/axonn/VERSION.lua:
--   module use PREFIX/share/modulefiles && module load axonn
local prefix = myFileName():gsub("/share/modulefiles/.*$", "")

whatis("axonn: trains large language models on any grid of devices")
help([[axonn trains and fine-tunes language models with the 4D algorithm of AxoNN.
Begin with: axonn info; axonn train configs/quickstart.toml; axonn help]])
conflict("axonn")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
