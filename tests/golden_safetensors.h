/* Files as the safetensors 0.8 package for Python writes them. */
#ifndef CLATTN_TESTS_GOLDEN_SAFETENSORS_H
#define CLATTN_TESTS_GOLDEN_SAFETENSORS_H

/* w F32 [1, 3] = 1, -2.5, 3e38; h F16 [2]; b BF16 [2]; d F64 [2]; s F32 [] = 5; i I64 [3]; five F32 [1, 1, 2, 1, 1]; e
 * F32 [0, 4]; a name with an umlaut and quotes, F32 [1] = 9; and metadata */
static const char safetensors_mixed[] =
    "0\002\000\000\000\000\000\000{\"__metadata__\":{\"format\":\"pt\"},\"i\":{\"dtype\":\"I64\",\"shape"
    "\":[3],\"data_offsets\":[0,24]},\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[24,40]},\"e"
    "\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[40,40]},\"five\":{\"dtype\":\"F32\",\"shape"
    "\":[1,1,2,1,1],\"data_offsets\":[40,48]},\"m\303\244ssig \134\"x\134\"\":{\"dtype\":\"F32\",\"shape"
    "\":[1],\"data_offsets\":[48,52]},\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[52,56]},\"w"
    "\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[56,68]},\"b\":{\"dtype\":\"BF16\",\"shape\":"
    "[2],\"data_offsets\":[68,72]},\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[72,76]}}     "
    "  \001\000\000\000\000\000\000\000\002\000\000\000\000\000\000\000\003\000\000\000\000\000\000\000UU"
    "UUUU\325\077Y\363\370\302\037n\245\001\000\000\000\000\000\000\000\000\000\000\020A\000\000\240@\000"
    "\000\200\077\000\000 \300\346\261a\177\200\077I\300U5\377\373";

/* a F32 [2] = 1, 2; bb F32 [2, 1] = 3, 4 */
static const char safetensors_plain[] =
    "p\000\000\000\000\000\000\000{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"bb\":"
    "{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}} \000\000\200\077\000\000\000@\000\000@@"
    "\000\000\200@";

#endif
