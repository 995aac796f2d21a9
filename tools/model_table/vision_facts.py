# SPDX-License-Identifier: Apache-2.0
"""Facts on models of images, video and spectrograms (transformers 5.23.0), merged into facts.py.
Every table here was built by run_vision.py and its rows counted; the sentences were read in the
modeling file of the class."""

# Learned rows of patches: how many tokens before the patches have rows in the same table, and how the
# tensor's name ends.
ROW, WEIGHT = "embeddings.position_embedding", "embeddings.position_embedding.weight"
ROWS = "embeddings.position_embeddings"
TABLES = {
    "blip_vision_model": (1, ROW), "blip_2_vision_model": (1, ROW),
    "instructblip_vision_model": (1, ROW), "instructblipvideo_vision_model": (1, ROW),
    "git_vision_model": (1, WEIGHT), "idefics_vision": (1, WEIGHT),
    "kosmos_2_vision_model": (1, WEIGHT), "bridgetower_vision_model": (1, WEIGHT),
    "unlimited_ocr_vision_encoder": (1, WEIGHT), "hunyuan_vl_vision": (1, WEIGHT),
    "idefics2_vision": (0, WEIGHT), "idefics3_vision": (0, WEIGHT), "smolvlm_vision": (0, WEIGHT),
    "phi4_multimodal_vision": (0, WEIGHT), "minicpm_ocr_vision": (0, WEIGHT),
    "minicpmv4_6_vision": (0, WEIGHT), "minicpmv4_7_vision": (0, WEIGHT),
    "janus_vision_model": (0, WEIGHT), "ovis2_vision": (0, WEIGHT), "glm_image_vision": (0, WEIGHT),
    "aimv2_vision_model": (0, WEIGHT), "radio": (0, ROW),
    "mllama_vision_model": (1, "gated_positional_embedding.embedding"),
    "internvl_vision": (1, ROWS), "qianfan_ocr_vision": (1, ROWS), "tipsv2_vision_model": (1, ROWS),
    "flava_image_model": (1, ROWS), "groupvit_vision_model": (0, ROWS), "ijepa": (0, ROWS),
    "pixio": (0, ROWS), "dpt": (1, ROWS), "rf_detr_dinov2": (1, ROWS), "lw_detr_vit": (1, ROWS),
    "vitdet": (1, ROWS), "vitpose_backbone": (1, ROWS), "seggpt": (1, ROWS), "vilt": (1, ROWS),
    "yolos": (1, ROWS), "vivit": (1, ROWS), "timesformer": (1, ROWS), "hiera": (0, ROWS),
    "audio-spectrogram-transformer": (2, ROWS), "mgp-str": (1, "embeddings.pos_embed"),
    "eomt": (0, ROWS + ".weight"), "videomt": (0, ROWS + ".weight"),
    "granite_docling_vision": (0, WEIGHT), "molmo2_vision": (0, "positional_embedding"),
    "videoprism_vision_model": (0, "spatial_embeddings.position_embeddings"),
}
# ... laid out by rows and columns of patches under another name.
SAM = """sam_vision_model sam_hq_vision_model got_ocr2_vision deepseek_ocr2_sam_vision_model
unlimited_ocr_sam_vision_model slanext_vision pp_formulanet_vision pp_chart2table_vision""".split()
TABLES.update({name: (0, "pos_embed") for name in SAM})
# A table whose number of rows the file states.
COUNTED = {"siglip2_vision_model": ("num_patches", WEIGHT), "cosmos3_edge_vision": ("num_patches", WEIGHT)}
# A table of rows and one of columns, summed: the key of their length.
AXES = {"pix2struct_vision_model": "seq_len", "kosmos_2_5_vision_model": "max_num_patches"}

# Sizes are one number: the class cannot divide a list (run).
SQUARE = """blip_vision_model blip_2_vision_model instructblip_vision_model
instructblipvideo_vision_model git_vision_model idefics_vision idefics2_vision idefics3_vision
smolvlm_vision kosmos_2_vision_model janus_vision_model mllama_vision_model ovis2_vision
phi4_multimodal_vision bridgetower_vision_model aimv2_vision_model minicpm_ocr_vision
minicpmv4_6_vision minicpmv4_7_vision glm_image_vision eomt unlimited_ocr_vision_encoder
hunyuan_vl_vision radio seggpt videomt granite_docling_vision""".split() + SAM
# Where the sizes stand, and what else has rows.
GRID = {
    "hunyuan_vl_vision": {"image": "max_image_size"}, "radio": {"image": "max_img_size"},
    "lw_detr_vit": {"image": "pretrain_image_size"}, "vitdet": {"image": "pretrain_image_size"},
    "seggpt": {"image": "pretrain_image_size"}, "hiera": {"patch": "patch_stride"},
    "pixio": {"more": "n_cls_tokens"}, "yolos": {"more": "num_detection_tokens", "behind": True},
    "vivit": {"tubelets": True}, "videoprism_vision_model": {"tubelets": "of one frame"},
    "molmo2_vision": {"counted": "num_position_embeddings", "side": 378},
    "audio-spectrogram-transformer": {"overlap": True},
    "videomae": {"frames": "num_frames", "tubelet": "tubelet_size"},
}
# A second table: the key of its rows, its tensor, and a value of a key that leaves it out.
ALSO = {
    "timesformer": {"rows": "num_frames", "by": "frame", "tensor": "embeddings.time_embeddings",
                    "unless": {"key": "attention_type", "equals": "space_only"}},
    "videoprism_vision_model": {"rows": "num_frames", "by": "frame",
                                "tensor": "temporal_embeddings.position_embeddings"},
    "vilt": {"rows": "max_position_embeddings",
             "tensor": "embeddings.text_embeddings.position_embeddings.weight"},
}
SWITCH = {"internvl_vision": "use_absolute_position_embeddings",
          "qianfan_ocr_vision": "use_absolute_position_embeddings",
          "lw_detr_vit": "use_absolute_position_embeddings",
          "vitdet": "use_absolute_position_embeddings"}
SWITCH.update({name: "use_abs_pos" for name in SAM})
# Another kind where a key has a value.
INSTEAD = {"aimv2_vision_model": {"key": "is_native", "equals": True, "kind": "sinusoidal_nd"}}
TEXT = {"aimv2_vision_model": " stream=[1,0] layout=halves"}

SWIN = "donut-swin maskformer-swin clap_audio_model".split()
RELATIVE = {**{name: "swin" for name in SWIN}, "swin2sr": "log_cpb",
            **{name: "decomposed" for name in [*SAM, "vitdet", "seggpt"]}}
SCORE_IF = {**{name: ["use_rel_pos"] for name in SAM},
            "vitdet": ["use_relative_position_embeddings"],
            "seggpt": ["use_relative_position_embeddings"]}

# The part of a model of images alone where its positions come from; what stands behind it is made of
# convolutions.
MAIN = [f"{name}.backbone_config" for name in """lw_detr rf_detr depth_anything prompt_depth_anything zoedepth
vitpose vitmatte upernet chmv2 tipsv2_dpt uvdoc slanet pp_ocrv5_server_det pp_ocrv5_mobile_det
pp_ocrv6_medium_det pp_ocrv6_small_det""".split()]
REPLACES = {"dpt.backbone_config": "is_hybrid"}  # a backbone that is stated, but where this is true
MAIN += ["slanext.vision_config", *REPLACES, "sam.vision_config", "sam_hq.vision_config"]

# Sines of rows and columns that every layer of an encoder adds to its q and k: DETR's over half the
# width each, y before x; RT-DETR's in halves.
DETR = "detr table-transformer conditional_detr deformable_detr dab-detr".split()
MASKS = "mask2former oneformer".split()
RT_DETR = "rt_detr rt_detr_v2 d_fine deimv2 pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4".split()
AT = {**{name: "q and k" for name in DETR + RT_DETR},
      **{name: "q" for name in [*MASKS, "deformable_detr"]}}  # keys are picked by offsets from q
TEXT.update({**{name: "" for name in DETR + MASKS}, **{name: " layout=halves" for name in RT_DETR}})
BASE = {**{name: ["positional_encoding_temperature"] for name in RT_DETR},
        "dab-detr": ["temperature_height", "temperature_width"]}
# The coordinates of their cells (ImageGrid in posenc/model/spec.h); all others count from 0.
COORDINATES = {**{name: "counted" for name in [*DETR, *MASKS]}, "deformable_detr": "centred",
               **{name: "from_one" for name in AXES}}
# Keys of the released checkpoints, which count.
NAMES = {"molmo2_vision": {"num_position_embeddings": "image_num_pos", "patch_size": "image_patch_size",
                           "image_size": "image_default_input_size"}}
OWN_FIRST = ["molmo2_vision"]
# layer_types of these is no list of layers, but what their ResNet may be made of.
OTHER_LAYER_TYPES = ["pp_doclayout_v2", "pp_doclayout_v3"]

# DINOv3's rotary under other names (the same code, compared).
ROTARY = {"eomt_dinov3": "dinov3", "sapiens2": "dinov3"}

# Towers that add a learned table at their input and turn q and k besides (run_towers.py).
SQUARE_TABLE = """qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision
qwen3_omni_moe_vision_encoder qwen4_exp_vision cohere_compass_vision""".split()
GLM4V = ["glm4v_vision", "glm4v_moe_vision"]
# As above: tokens before the patches, and the tensor as it stands in a file that transformers writes.
BESIDE = {
    **{name: (0, "pos_embed.weight") for name in SQUARE_TABLE}, **{name: (0, WEIGHT) for name in GLM4V},
    "paddleocr_vl_vision": (0, WEIGHT), "inkling2_vision": (0, ROW),
    "step3p5_vision": (0, "positional_embedding"), "kimi_k25_vision": (0, "patch_embed.pos_emb.weight"),
    "llama4_vision_model": (1, "positional_embedding_vlm"),
}
# The keys of a square grid: of the number of its cells, or of its sides.
GRID.update({
    **{name: {"cells": "num_position_embeddings"} for name in SQUARE_TABLE},
    "inkling2_vision": {"sides": ["posemb_grid_size"]},
    "kimi_k25_vision": {"sides": ["pos_emb_height", "pos_emb_width"]},
    "llama4_vision_model": {"behind": True},
})
SQUARE += [*GLM4V, "paddleocr_vl_vision", "step3p5_vision", "llama4_vision_model"]
# x before y, summed, both in one tensor.
AXES["gemma4_vision"] = "position_embedding_size"
STACKED = {"gemma4_vision": "patch_embedder.position_embedding_table"}
X_FIRST = {name: True for name in STACKED}
ALSO["kimi_k25_vision"] = {"rows": "pos_emb_time", "by": "frame", "sinusoid": " layout=halves"}
INPUT_BESIDE = {**{name: "learned" for name in BESIDE}, **{name: "learned_axes" for name in STACKED}}

# Mechanisms that have no scheme here, by what the class does.
HIERA_SAM = ("pos_embed is resized to the patches (bicubic) and pos_embed_window laid over it tile by "
             "tile; both have channels before rows and columns")
POINTS = "sines and cosines of coordinates times a random matrix of the checkpoint (SamPositionalEmbedding)"
PROMPTED = """sam sam_hq sam2 sam2_video sam3_tracker sam3_tracker_video edgetam
edgetam_video""".split()
REFUSED = {
    **{name: HIERA_SAM for name in """sam2_hiera_det_model sam2_vision_model sam2 sam2_video""".split()},
    **{name: "learned rows, tiled over the image, at the input and an axial rotary by windows beside "
             "them (Sam3ViTModel)" for name in "sam3_vit_model sam3_vision_model".split()},
    **{f"{name}_prompt_encoder": POINTS for name in PROMPTED},
    **{f"{name}_mask_decoder": "the rows that the prompt encoder makes are added to q and k of its "
       "layers" for name in PROMPTED},
    **{name: "a depthwise convolution before each attention is all that its DaViT has; learned rows and "
             "columns of cells and sines of the frame follow it (Florence2MultiModalProjector)"
       for name in ["florence_vision"]},
    "maskformer": "DETR's sines are added to the keys of the image in its decoder, and a learned row each "
                  "to its queries; there is no encoder but the backbone",
    "levit": "each head of each layer learns a number for every pair of distances in rows and columns "
             "of patches, signs left out (attention_biases)",
    "dinat": "each head learns a number for every distance within its neighbourhood (rpb)",
    "pvt": "each of its stages has a learned table of its own width; the last has a row for a class "
           "token",
    "lightglue": "a learned projection of key point coordinates makes the angles of a rotary "
                 "(LightGluePositionalEncoder)",
    "superglue": "a network of key point coordinates and scores is added to the descriptors "
                 "(SuperGlueKeypointEncoder)",
    **{name: "a learned table sampled at every patch (bilinear, zeros outside) is added beside a rotary "
             "of its own and windows" for name in "muse_glimmer_vision muse_spark_vision".split()},
    "gemma4_unified_vision": "a learned row of x and one of y (pos_embedding, a table of pairs) are summed and "
                             "added to every patch; no layers follow (Gemma4UnifiedVisionEmbedder)",
    **{name: "its model is of the timm library: the architecture names it, not the keys of the file"
       for name in "timm_backbone timm_wrapper gemma3n_vision".split()},
    "vjepa2": "what it calls rotary is no rotation: angles are tiled for pairs of halves, channels paired "
              "as neighbours (rotate_queries_or_keys)",
    "depth_pro": "three ViTs (patch, image and fov_model_config) with positions of their own read "
                 "patches of several scales",
    "tvp": "words have learned rows, cells of the frames a learned row and a learned column, summed "
           "(TvpVisualInputEmbedding)",
}

# What a model around parts adds to their positions.
BOX_SINES = ("the decoder sends DETR's sines of box coordinates through a network and adds them to its "
             "q and k")
AROUND = {
    "lw_detr": BOX_SINES, "rf_detr": BOX_SINES,
    **{name: "the head that writes the table is recurrent" for name in ("slanet", "slanext")},
    "deepseek_ocr2_vision": "patches, which come first, see each other whole; only the queries behind "
                            "them see no later ones",
    **{name: "the cells of the image get sines of rows and columns (base "
             "positional_embedding_temperature), added to q and k of the encoder"
       for name in "grounding-dino mm-grounding-dino".split()},
}

# No position encoding: Transformers with convolutions between, and convolutions alone.
MIXED = """segformer glpn pvt_v2 cvt mobilevit mobilevitv2 idefics2_perceiver idefics_perciever
pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec""".split()
CONVOLUTIONS = """resnet rt_detr_resnet bit regnet convnext convnextv2 dinov3_convnext hgnet_v2 focalnet
poolformer""".split()
# ... whose layers no key counts: none is listed.
UNCOUNTED = """efficientnet align_vision_model mobilenet_v1 mobilenet_v2 pp_lcnet pp_lcnet_v3 pp_lcnet_v4 textnet
superpoint uvdoc_backbone""".split()
# ... and some of attention without positions between them.
BETWEEN = """chameleon_vqgan emu3_vqgan janus_vqgan glm_image_vqmodel flava_image_codebook
swiftformer""".split()
NONE = MIXED + CONVOLUTIONS + UNCOUNTED + BETWEEN
LAYERS = {**{name: {"rule": "all", "type": "conv"} for name in CONVOLUTIONS},
          "mobilevitv2": {"rule": "all", "type": "linear_attention"}}
LAYER_COUNT = {
    **{name: {"sum": "depths", "default": [2, 2, 6, 2]} for name in [*SWIN, "poolformer", "focalnet"]},
    **{name: {"sum": "depths", "default": [2, 2, 2, 2]} for name in "segformer glpn pvt_v2".split()},
    **{name: {"sum": "depths", "default": [3, 4, 6, 3]} for name in "resnet rt_detr_resnet bit hgnet_v2".split()},
    **{name: {"fixed": 0} for name in UNCOUNTED + BETWEEN}, "mobilevit": {"fixed": 9},
    "mobilevitv2": {"sum": "n_attn_blocks", "default": [2, 4, 3]},
    # num_hidden_layers of these is the decoder's, or nobody's
    **{name: {"keys": ["encoder_layers"]} for name in ["deformable_detr", *MASKS, *RT_DETR]},
    "videoprism_vision_model": {"keys": ["num_spatial_layers", "num_temporal_layers"]},
    **{name: {"keys": ["resampler_depth"]} for name in ("idefics2_perceiver", "idefics_perciever")},
    **{name: {"sum": "depths", "default": [3, 3, 9, 3]}
       for name in "convnext convnextv2 dinov3_convnext".split()},
    "regnet": {"sum": "depths", "default": [2, 6, 12, 2]}, "cvt": {"sum": "depth", "default": [1, 2, 10]},
    "swin2sr": {"sum": "depths", "default": [6, 6, 6, 6, 6, 6]},
    "hiera": {"sum": "depths", "default": [2, 3, 16, 3]},
}
WIDTH = {"hiera": ["embed_dim"], "mask2former": ["feature_size"], "oneformer": ["conv_dim"],
         **{name: ["encoder_hidden_dim"] for name in RT_DETR}}

# Defaults that are tuples, or of keys that no other model has.
DEFAULTS = {
    "internvl_vision": {"image_size": [448, 448], "patch_size": [14, 14]},
    "qianfan_ocr_vision": {"image_size": [448, 448], "patch_size": [14, 14]},
    "vitpose_backbone": {"image_size": [256, 192], "patch_size": [16, 16]},
    "yolos": {"image_size": [512, 864], "num_detection_tokens": 100},
    "mgp-str": {"image_size": [32, 128]},
    "hiera": {"image_size": [224, 224], "patch_stride": [4, 4]},
    "hunyuan_vl_vision": {"max_image_size": 2048}, "radio": {"max_img_size": 2048},
    "lw_detr_vit": {"pretrain_image_size": 224},
    "vitdet": {"pretrain_image_size": 224, "use_relative_position_embeddings": False},
    "seggpt": {"pretrain_image_size": 224, "use_relative_position_embeddings": True},
    "pixio": {"n_cls_tokens": 8}, "vivit": {"num_frames": 32, "tubelet_size": [2, 16, 16]},
    "audio-spectrogram-transformer": {"num_mel_bins": 128, "max_length": 1024,
                                      "frequency_stride": 10, "time_stride": 10},
    "videomae": {"num_frames": 16, "tubelet_size": 2}, "timesformer": {"num_frames": 8},
    "siglip2_vision_model": {"num_patches": 256}, "cosmos3_edge_vision": {"num_patches": 256},
    "pix2struct_vision_model": {"seq_len": 4096}, "kosmos_2_5_vision_model": {"max_num_patches": 4096},
    "aimv2_vision_model": {"is_native": False},
    "videoprism_vision_model": {"num_frames": 16, "tubelet_size": [1, 18, 18], "image_size": 288,
                                "num_spatial_layers": 12, "num_temporal_layers": 4},
    **{name: {"num_position_embeddings": 2304} for name in SQUARE_TABLE},
    "inkling2_vision": {"posemb_grid_size": 32}, "gemma4_vision": {"position_embedding_size": 10240},
    "kimi_k25_vision": {"pos_emb_height": 64, "pos_emb_width": 64, "pos_emb_time": 4},
    "idefics2_perceiver": {"resampler_depth": 3}, "idefics_perciever": {"resampler_depth": 6},
    "mask2former": {"feature_size": 256, "encoder_layers": 6},
    "oneformer": {"conv_dim": 256, "encoder_layers": 6}, "deformable_detr": {"encoder_layers": 6},
    "dab-detr": {"temperature_height": 20, "temperature_width": 20},
    **{name: {"encoder_hidden_dim": 256, "positional_encoding_temperature": 10000,
              "encoder_layers": 1} for name in RT_DETR},
    **{name: {"use_abs_pos": True, "use_rel_pos": True} for name in SAM},
}

WINDOWS = ("attention stays within windows of window_size x window_size patches, in every other "
           "layer moved by half a window")
CELLS = ("a patch reads the row of the cell of that square grid where its corner falls, so that an "
         "image of any size spreads over the whole table")
RESIZED = "the square table is resized to the patches of every image (bilinear, antialiased)"
NO_CLASS = "the table has a row for a class token that the model does not have"
TURNS = "; q and k are rotated besides"
FITTED = "the square table is resized to the patches of every image (posenc extend --how {}) and added" + TURNS
HALF_PIXEL = FITTED.format("bilinear")
CELLS_FROM_1 = "coordinates count cells from 1, divided by the last and times 2 pi"
COUNTS = CELLS_FROM_1.replace("cells", "visible cells")
QUERIES = ("; the decoder_layers layers of the decoder have a learned row a query (num_queries), and "
           "add the sines to the keys of the image")
NOTE = {
    **{name: COUNTS + QUERIES for name in ("detr", "table-transformer")},
    "conditional_detr": COUNTS + QUERIES + ", beside sines of points that the queries predict",
    "deformable_detr": "coordinates count the visible cells from 1, less 1/2, divided by the last and "
                       "times 2 pi; each level adds a learned row; queries of the decoder have learned "
                       "rows or, with two_stage, predicted boxes",
    "dab-detr": COUNTS + "; each layer of the encoder multiplies the sines by a network of its "
                "input, and the decoder's queries are boxes, by sines too",
    **{name: CELLS_FROM_1 + "; these are the layers of the pixel decoder, each level adds a learned "
             "row; decoder_layers - 1 layers of masked attention follow, whose keys get "
             "the same sines and whose queries a learned row each" for name in MASKS},
    **{name: "coordinates count cells from 0; one such stack for each of encode_proj_layers; with "
             "eval_size stated none is added outside of training; queries of the decoder are "
             "predicted boxes, sent through a network" for name in RT_DETR},
    **{name: "convolutions, and attention without positions where it is between them: none is listed"
       for name in BETWEEN},
    "mobilevit": "the layers of its three Transformers, 2, 4 and 3; convolutions lie between",
    **{name: "these are the layers of its neck, behind the backbone" for name in
       ("pp_ocrv5_mobile_rec", "pp_ocrv5_server_rec", "pp_ocrv6_small_rec")},
    **{name: "latents have no positions; what they read brings its own"
       for name in ("idefics2_perceiver", "idefics_perciever")},
    "videoprism_vision_model": "num_spatial_layers attend within a frame, by the first table; then "
                               "num_temporal_layers across frames, by the second",
    "granite_docling_vision": "the connector adds two tables of its own, coarse and fine",
    **{name: "convolutions alone: no key counts its layers, and none is listed" for name in UNCOUNTED},
    **{name: CELLS for name in """idefics2_vision idefics3_vision smolvlm_vision
       phi4_multimodal_vision minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision""".split()},
    "siglip2_vision_model": RESIZED, "cosmos3_edge_vision": RESIZED,
    "glm_image_vision": "the square table is sampled at the centres of the patches of every image "
                        "(bilinear)",
    "hunyuan_vl_vision": "the square table is resized to the patches of every image "
                         "(interpolate_mode); its first row is not read",
    "radio": "the square table is resized to a square of the longer side of every image (bilinear) "
             "and cut to it; class and register tokens have no rows",
    "mllama_vision_model": "the rows count 1 - tanh(gate); tanh(gate) times a table by the shape of "
                           "the tiling and the tile is added, and each tile has a row before the "
                           "layers and one behind them; num_global_layers more layers follow",
    "vitdet": NO_CLASS, "lw_detr_vit": NO_CLASS, "seggpt": NO_CLASS,
    "vitpose_backbone": "the first row is added to every patch beside its own",
    "yolos": "with use_mid_position_embeddings every layer but the last is followed by a table of "
             "its own; the last rows are those of the detection tokens",
    "timesformer": "patches have the first table, frames the second (none with space_only)",
    "vilt": "patches have the first table, resized to every image; words have the second",
    "vivit": "rows count class token, then frame by frame, row by row",
    "hiera": "in stages with masked_unit_attention a patch attends within its unit",
    "groupvit_vision_model": "group tokens have no rows",
    "pix2struct_vision_model": "rows and columns are counted from 1, and padding reads row 0 of both",
    "kosmos_2_5_vision_model": "rows and columns are counted from 1, and padding reads row 0 of both",
    **{name: WINDOWS for name in [*SWIN, "swin2sr"]},
    **{name: "layers but those of global_attn_indexes attend within windows of window_size x "
             "window_size patches; q meets a learned row of the distance in rows and one of the "
             "distance in columns" for name in SAM},
}
NOTE.update({
    **{name: FITTED.format("bilinear --align-corners") for name in SQUARE_TABLE},
    **{name: FITTED.format("bicubic") for name in GLM4V},
    "paddleocr_vl_vision": HALF_PIXEL, "step3p5_vision": HALF_PIXEL,
    "inkling2_vision": HALF_PIXEL + "; the class token before each image has a row of its own "
                                    "(embeddings.cls_position_embedding)",
    "kimi_k25_vision": FITTED.format("bicubic") + "; each frame of a video adds the sinusoid of its number "
                       "(a single image adds none)",
    "llama4_vision_model": "a row a patch and, last, one for the class token are added, and an image of "
                           "another size fails" + TURNS,
    "gemma4_vision": "the row of x and the row of y are summed and added, a coordinate beyond the tables fails, "
                     "and padding adds nothing" + TURNS,
    **{name: "the class token, which is first, is rotated by learned angles (class_pos_emb), not by a "
             "position" for name in ("mlcd", "mlcd_vision_model")},
})
# Or learned rows and columns of 50 cells each, columns before rows (DetrLearnedPositionEmbedding).
VARIANTS = {name: {"key": "position_embedding_type", "of": {"sine": {}, "learned": {
    "input": "learned_axes", "input_cells": 50, "input_order": [1, 0], "input_mask": None, "input_text": None,
    "input_coordinates": None,
    "input_tensor": part + "position_embedding.row_embeddings.weight",
    "input_tensor_columns": part + "position_embedding.column_embeddings.weight",
    "input_note": "a map of more than 50 cells a side cannot be read" +
                  NOTE[name][NOTE[name].index("; "):].replace("add the sines", "add the same")}}}
    for name, part in [("detr", ""), ("table-transformer", "backbone."), ("conditional_detr", ""),
                       ("deformable_detr", "")]}
BIDIRECTIONAL = [*TABLES, *COUNTED, *AXES, *RELATIVE, *MIXED, *AT, *ROTARY, "videomae"]
LEARNED = [*TABLES, *COUNTED]


def merge(f):
    """Into the dictionaries and lists of facts.py."""
    f.LEARNED += LEARNED
    f.NONE += NONE
    f.BIDIRECTIONAL += BIDIRECTIONAL
    f.INPUT_SQUARE += SQUARE
    f.INPUT_KIND.update({**{name: "learned_axes" for name in AXES if name not in STACKED},
                         "videomae": "sinusoidal",
                         **{name: "sinusoidal_nd" for name in AT}})
    f.INPUT_ROWS.update({**{name: key for name, (key, _) in COUNTED.items()}, **AXES})
    f.INPUT_PATCHES.update({name: n for known in (TABLES, BESIDE) for name, (n, _) in known.items()})
    f.INPUT_PATCHES["videomae"] = 0
    f.INPUT_TENSOR.update({name: t for known in (TABLES, COUNTED, BESIDE) for name, (_, t) in known.items()})
    f.INPUT_TENSOR.update({name: "embeddings.row_embedder.weight" for name in AXES} | STACKED)
    f.INPUT_COLUMNS.update(STACKED)
    for mine, theirs in ((SWITCH, f.INPUT_IF), (TEXT, f.INPUT_TEXT), (RELATIVE, f.RELATIVE),
                         (SCORE_IF, f.SCORE_IF), (LAYERS, f.LAYERS), (LAYER_COUNT, f.LAYER_COUNT),
                         (WIDTH, f.INPUT_WIDTH), (NOTE, f.INPUT_NOTE)):
        theirs.update(mine)
    f.INPUT_MASK += DETR
    f.VISION.update(ROTARY)
    f.PAIRING.update({name: f.HALF for name in ROTARY})
    f.ROPE["sapiens2"] = {"rule": "top_level"}
    f.EXTRA_NAMES.update(NAMES)
    f.OWN_FIRST += OWN_FIRST
    for name, values in DEFAULTS.items():
        f.EXTRA_DEFAULTS.setdefault(name, {}).update(values)
