#%Module1.0
# Module file for Environment Modules. It lies in PREFIX/share/modulefiles/axonn/VERSION:
#   module use PREFIX/share/modulefiles && module load axonn
regsub {/share/modulefiles/.*$} [file normalize $ModulesCurrentModulefile] {} prefix

module-whatis "axonn: trains large language models on any grid of devices"
proc ModulesHelp {} {
  puts stderr "axonn trains and fine-tunes language models with the 4D algorithm of AxoNN."
  puts stderr "Begin with: axonn info; axonn train configs/quickstart.toml; axonn help"
}
conflict axonn
prepend-path PATH $prefix/bin
prepend-path CMAKE_PREFIX_PATH $prefix
