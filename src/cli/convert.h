/* Numbers as files store them, and as the program computes with them. */
#ifndef CLATTN_CLI_CONVERT_H
#define CLATTN_CLI_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exact, NaN payloads included. */
float f16_to_f32(uint16_t bits);
float bf16_to_f32(uint16_t bits);

/* To the nearest, ties to even; too large becomes infinite; NaN stays NaN. */
uint16_t f32_to_f16(float value);
uint16_t f32_to_bf16(float value);

/* The element types that files may hold and this program reads. */
typedef enum number { NUMBER_F16, NUMBER_BF16, NUMBER_F32, NUMBER_F64, NUMBER_I32, NUMBER_I64 } number;

size_t number_size(number type);
bool number_is_float(number type);

/* The element at p, at any alignment; big = most significant byte first. */
float number_float(number type, const unsigned char *p, bool big);     /* F64 rounds to the nearest */
int64_t number_integer(number type, const unsigned char *p, bool big); /* I32, I64 */

/* Multiply the sizes of a shape. False where one is negative, or where the product of those above 0 passes
 * limit: then a shape with a 0 in it is still safe to compute with. */
bool shape_count(const int64_t *shape, int rank, int64_t limit, int64_t *count);

#endif
