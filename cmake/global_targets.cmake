# SPDX-License-Identifier: Apache-2.0
# Under add_subdirectory the targets found here must be seen by the project above, which links them
# through posenc. Those that the project above found itself are seen already.
foreach(target Threads::Threads hwy::hwy fmt::fmt nlohmann_json::nlohmann_json)
  if(NOT TARGET ${target})
    continue()
  endif()
  get_target_property(imported ${target} IMPORTED)
  get_target_property(global ${target} IMPORTED_GLOBAL)
  get_directory_property(here IMPORTED_TARGETS)
  if(imported AND NOT global AND target IN_LIST here)
    set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL TRUE)
  endif()
endforeach()
