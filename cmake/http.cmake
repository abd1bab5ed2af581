# Finds cpp-httplib, for axonn serve. Sets AXONN_WITH_HTTP, and AXONN_HTTP_LIBRARY and
# AXONN_HTTP_DEFINITIONS: those with which the distribution compiled the library, because its
# header's types depend on them. Elsewhere the header alone is the library.
set(AXONN_HTTP "AUTO" CACHE STRING "Build axonn serve: AUTO (if cpp-httplib is found), ON or OFF")
set_property(CACHE AXONN_HTTP PROPERTY STRINGS AUTO ON OFF)

set(AXONN_WITH_HTTP OFF)
if(NOT AXONN_HTTP STREQUAL "OFF")
  find_path(AXONN_HTTP_INCLUDE httplib.h)
  find_library(AXONN_HTTP_LIBRARY cpp-httplib)
  find_file(AXONN_HTTP_PC cpp-httplib.pc PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig
            lib64/pkgconfig lib/pkgconfig share/pkgconfig)
  if(AXONN_HTTP_INCLUDE)
    set(AXONN_WITH_HTTP ON)
  elseif(AXONN_HTTP STREQUAL "ON")
    message(FATAL_ERROR "AXONN_HTTP is ON and cpp-httplib was not found: apt-get install "
                        "libcpp-httplib-dev, or configure with -DAXONN_HTTP=OFF")
  endif()
  set(AXONN_HTTP_DEFINITIONS)
  if(AXONN_HTTP_LIBRARY AND AXONN_HTTP_PC)
    file(STRINGS ${AXONN_HTTP_PC} flags REGEX "^Cflags:")
    string(REGEX MATCHALL "CPPHTTPLIB_[A-Z_]+" AXONN_HTTP_DEFINITIONS "${flags}")
    if("CPPHTTPLIB_OPENSSL_SUPPORT" IN_LIST AXONN_HTTP_DEFINITIONS)
      find_library(AXONN_CRYPTO crypto)  # newer headers call it
      list(APPEND AXONN_HTTP_LIBRARY ${AXONN_CRYPTO})
    endif()
  elseif(NOT AXONN_HTTP_LIBRARY)
    set(AXONN_HTTP_LIBRARY Threads::Threads)
  endif()
endif()
