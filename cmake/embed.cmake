# SPDX-License-Identifier: Apache-2.0
# posenc_embed(target NAME file): compiles a text file into the target as
#   namespace posenc::data { extern const std::string_view NAME; }
# The text is split, for compilers that limit the length of a literal. It must not contain
# `)posenc"`.
function(posenc_embed target name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND pieces "    R\"posenc(${piece})posenc\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp)
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT "// Made from @file@
#include <string_view>
namespace posenc::data {
extern const std::string_view @name@;
const std::string_view @name@ =
@pieces@;
}
")
  # clang -Wpedantic: literals above 65536 characters
  set_source_files_properties(${out} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
  target_sources(${target} PRIVATE ${out})
endfunction()
