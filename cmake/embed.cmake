# SPDX-License-Identifier: Apache-2.0
# posenc_embed(target NAME file): compiles a text file into the target as
#   namespace posenc::data { extern const std::string_view NAME; }
# posenc_embed_folder(target NAME folder): all .json files of a folder, by name, as
#   namespace posenc::data { extern const std::span<const std::string_view> NAME; }
# Texts are split, for compilers that limit the length of a literal. They must not contain `)posenc"`.

# The file as literals of C++ that follow each other.
function(posenc_literals file out)
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
  set(${out} "${pieces}" PARENT_SCOPE)
endfunction()

function(posenc_embed_text target name from declaration definition)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp)
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT "// Made from @from@
#include <span>
#include <string_view>
namespace posenc::data {
extern const @declaration@ @name@;
@definition@}
")
  # clang -Wpedantic: literals above 65536 characters
  set_source_files_properties(${out} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
  target_sources(${target} PRIVATE ${out})
endfunction()

function(posenc_embed target name file)
  posenc_literals(${file} text)
  posenc_embed_text(${target} ${name} ${file} "std::string_view"
                    "const std::string_view ${name} =\n${text};\n")
endfunction()

function(posenc_embed_folder target name folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json)
  list(SORT files)
  set(texts "")
  foreach(file ${files})
    posenc_literals(${file} text)
    string(APPEND texts "${text}    ,\n")
  endforeach()
  posenc_embed_text(${target} ${name} ${folder} "std::span<const std::string_view>"
                    "static const std::string_view k_${name}[] = {\n${texts}};\nconst std::span<const std::string_view> ${name}(k_${name});\n")
endfunction()
