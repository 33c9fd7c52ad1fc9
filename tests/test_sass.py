"""Counting on small disassemblies whose counts are known by reading them."""

from mage.census import ptx, sass

CUOBJDUMP = """
	code for sm_90
		Function : small
	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000fe20000000800 */
        /*0010*/                   HFMA2.MMA R27, -RZ, RZ, 0, 0 ;            /* 0x00000000ff1b7435 */
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR8][R4.64] ; /* 0x0000000804047981 */
        /*0030*/                   LDG.E R4, desc[UR8][R4.64+0x10] ;         /* 0x0000000804047981 */
        /*0040*/                   LDGSTS.E.BYPASS.128 [R9], desc[UR8][R2.64] ; /* 0x0 */
        /*0050*/                   STS [R3], R4 ;                            /* 0x0000000403007388 */
        /*0060*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;             /* 0x0000000000007b1d */
        /*0070*/                   LDS.128 R16, [UR6] ;                      /* 0x00000006ff107984 */
        /*0080*/                   LDS R20, [UR6+0x10] ;                     /* 0x00001006ff147984 */
        /*0090*/                   FFMA R17, R16, R17, R27 ;                 /* 0x0000001110117223 */
        /*00a0*/                   FFMA R25, R18, R19, R17 ;                 /* 0x0000001312197223 */
        /*00b0*/              @!P0 BRA 0x70 ;                                /* 0xfffffffc00908947 */
        /*00c0*/                   SHFL.BFLY PT, R5, R4, 0x10, 0x1f ;        /* 0x0 */
        /*00d0*/                   MUFU.RSQ R5, R5 ;                         /* 0x0 */
        /*00e0*/               @P1 BRA 0x20 ;                                /* 0xfffffffc005c9947 */
        /*00f0*/                   STL.64 [R1], R2 ;                         /* 0x0 */
        /*0100*/              @P2  STG.E.128 desc[UR8][R2.64], R8 ;          /* 0x0000001b02007986 */
        /*0110*/                   EXIT ;                                    /* 0x000000000000794d */
        /*0120*/                   BRA 0x120;                                /* 0xfffffffc00fc7947 */
        /*0130*/                   NOP;                                      /* 0x0000000000007918 */
		..........

		Function : other
        /*0000*/                   HMMA.1688.F32.TF32 R4, R8, R12, R4 ;      /* 0x0 */
        /*0010*/                   FMUL R1, R2, R3 ;                         /* 0x0 */
        /*0020*/                   FADD R1, R1, R3 ;                         /* 0x0 */
        /*0030*/                   FADD R1, R1, R3 ;                         /* 0x0 */
        /*0040*/                   EXIT ;                                    /* 0x0 */
"""

NVDISASM = """
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_0) ;
.L_x_2:
        /*0020*/                   LDS.64 R2, [R4] ;
        /*0030*/                   FFMA R7, R2, R3, R7 ;
        /*0040*/               @P1 BRA `(.L_x_2) ;
.L_x_0:
        /*0050*/                   EXIT ;
.L_x_3:
        /*0060*/                   BRA `(.L_x_3);
"""

PTX = """
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0
)
{
	.reg .pred %p<3>;
	ld.param.b64 	%rd1, [k_param_0];
	@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	ld.global.b32 %r5, [%rd1];
	ld.global.nc.f32 %f1, [%rd1];   // ld.global.b32 in a comment is none
	st.shared.v2.b32 [%r9], {%r1, %r2};
	ld.shared.f32 %f2, [%r9];
	{ cp.async.cg.shared.global [%r1], [%rd2], 16; }
	cp.async.commit_group;
	bar.sync 	0;
	barrier.sync 0;
	shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;
	fma.rn.f32 %f1, %f2, %f3, %f4;
	st.global.b32 [%rd1], %r5;
	ret;
}
"""


def test_counts_by_space_and_width():
    counts = sass.count(sass.parse(CUOBJDUMP)["small"].instructions)
    expected = {
        "global loads": 2, "global loads 128": 1, "global loads 32": 1, "cp.async": 1, "cp.async 128": 1, "shared stores": 1,
        "barriers": 1, "shared loads": 2, "shared loads 128": 1, "shared loads 32": 1, "shared words read": 5, "FFMA": 2,
        "shuffles": 1, "MUFU": 1, "local stores": 1, "local stores 64": 1, "global stores 128": 1, "multiply-adds": 2,
        "instructions": 18,
    }
    assert {key: counts.get(key) for key in expected} == expected
    assert "tensor-core" not in counts and "generic loads" not in counts


def test_padding_behind_the_last_instruction_is_no_code():
    code = sass.parse(CUOBJDUMP)["small"]
    assert code.instructions[-1].opcode == "EXIT"
    assert code.code_bytes == 0x120


def test_the_hottest_loop_is_the_inner_one():
    code = sass.parse(CUOBJDUMP)["small"]
    assert [(loop.start, loop.end) for loop in code.loops()] == [(0x20, 0xE0), (0x70, 0xB0)]
    body = code.hottest_loop().body
    assert [i.opcode for i in body] == ["LDS.128", "LDS", "FFMA", "FFMA", "BRA"]
    assert sass.reads_per_multiply_add(body) == (2.5, 1.0)


def test_a_constant_load_is_no_tensor_core_instruction_but_hmma_is():
    kernels = sass.parse(CUOBJDUMP)
    assert sass.tensor_core(kernels["small"].instructions) == []
    assert sass.tensor_core(kernels["other"].instructions) == ["HMMA.1688.F32.TF32"]


def test_products_and_sums_left_apart_count_in_pairs():
    assert sass.count(sass.parse(CUOBJDUMP)["other"].instructions)["multiply-adds"] == 1


def test_labels_of_nvdisasm_are_resolved():
    code = sass.parse(NVDISASM)["k"]
    assert [(loop.start, loop.end) for loop in code.loops()] == [(0x20, 0x40)]
    assert sass.reads_per_multiply_add(code.hottest_loop().body) == (2.0, 1.0)


def test_code_without_multiply_adds_or_loops_has_no_ratio():
    code = sass.parse("\n\t\tFunction : k\n        /*0000*/  EXIT ;\n")["k"]
    assert code.hottest_loop() is None
    assert sass.reads_per_multiply_add(code.instructions) is None


def test_ptx_counts():
    counts = ptx.count(PTX)
    assert counts == {
        "global loads": 3, "global loads 4x32": 1, "global loads 1x32": 2, "shared stores": 1, "shared stores 2x32": 1,
        "shared loads": 1, "shared loads 1x32": 1, "cp.async": 1, "barriers": 2, "shuffles": 1, "fma": 1,
        "global stores": 1, "global stores 1x32": 1,
    }


WAITING = """
		Function : k
        /*0000*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+URZ+0x5000], R0 ;
        /*0010*/              @!P0 BRA 0x0 ;
        /*0020*/                   LDS.128 R4, [R2] ;
        /*0030*/                   FFMA R7, R2, R3, R7 ;
        /*0040*/               @P1 BRA 0x0 ;
        /*0050*/                   EXIT ;
"""


def test_a_loop_that_only_waits_does_not_hide_the_loop_around_it():
    code = sass.parse(WAITING)["k"]
    assert sass.reads_per_multiply_add(code.hottest_loop().body) == (4.0, 1.0)


def test_what_is_never_executed_is_not_counted():
    text = "\n\t\tFunction : k\n        /*0000*/              @!PT LDS RZ, [RZ] ;\n        /*0010*/                   EXIT ;\n"
    assert "shared loads" not in sass.count(sass.parse(text)["k"].instructions)
