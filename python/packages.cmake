# SPDX-License-Identifier: Apache-2.0
# `pip install .` on a fresh Debian: all packages that are missing, by name and at once.
set(missing "")
find_package(hwy QUIET)
find_package(nlohmann_json QUIET)
find_package(fmt QUIET)
find_package(CLI11 QUIET)
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
foreach(pair hwy_FOUND:libhwy-dev nlohmann_json_FOUND:nlohmann-json3-dev fmt_FOUND:libfmt-dev
             CLI11_FOUND:libcli11-dev Python_Development.Module_FOUND:python3-dev)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 found)
  list(GET pair 1 package)
  if(NOT ${found})
    list(APPEND missing ${package})
  endif()
endforeach()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "posenc is built from packages of the system, and some are missing. On Debian 12:\n"
                      "  sudo apt-get install -y --no-install-recommends g++ ${missing}\n"
                      "Then start pip again.")
endif()
