// One step of gradient descent for a network with one hidden layer, as StableHLO text. The first four arguments
// are the weights, and the first four results are the updated weights: `tf.aliasing_output` lets the device
// update them in place. The other arguments are a batch of pictures and their classes; the other results are
// the loss and the number of correct pictures.
func.func @main(
    %w1: tensor<768x64xf32> {tf.aliasing_output = 0 : i32},
    %b1: tensor<64xf32> {tf.aliasing_output = 1 : i32},
    %w2: tensor<64x3xf32> {tf.aliasing_output = 2 : i32},
    %b2: tensor<3xf32> {tf.aliasing_output = 3 : i32},
    %images: tensor<64x16x16x3xui8>,
    %labels: tensor<64xi32>
) -> (tensor<768x64xf32>, tensor<64xf32>, tensor<64x3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>

  // Pixels as numbers from -1 to 1, one row for each picture.
  %bytes = stablehlo.reshape %images : (tensor<64x16x16x3xui8>) -> tensor<64x768xui8>
  %numbers = stablehlo.convert %bytes : (tensor<64x768xui8>) -> tensor<64x768xf32>
  %half = stablehlo.constant dense<127.5> : tensor<64x768xf32>
  %centred = stablehlo.subtract %numbers, %half : tensor<64x768xf32>
  %x = stablehlo.divide %centred, %half : tensor<64x768xf32>

  // Forward: h = max(x w1 + b1, 0), z = h w2 + b2.
  %xw = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
      : (tensor<64x768xf32>, tensor<768x64xf32>) -> tensor<64x64xf32>
  %b1_rows = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<64xf32>) -> tensor<64x64xf32>
  %a = stablehlo.add %xw, %b1_rows : tensor<64x64xf32>
  %zeros = stablehlo.constant dense<0.0> : tensor<64x64xf32>
  %h = stablehlo.maximum %a, %zeros : tensor<64x64xf32>
  %hw = stablehlo.dot_general %h, %w2, contracting_dims = [1] x [0]
      : (tensor<64x64xf32>, tensor<64x3xf32>) -> tensor<64x3xf32>
  %b2_rows = stablehlo.broadcast_in_dim %b2, dims = [1] : (tensor<3xf32>) -> tensor<64x3xf32>
  %z = stablehlo.add %hw, %b2_rows : tensor<64x3xf32>

  // The cross entropy of softmax(z), and the number of pictures whose class has the largest z.
  %max = stablehlo.reduce(%z init: %lowest) applies stablehlo.maximum across dimensions = [1]
      : (tensor<64x3xf32>, tensor<f32>) -> tensor<64xf32>
  %max_rows = stablehlo.broadcast_in_dim %max, dims = [0] : (tensor<64xf32>) -> tensor<64x3xf32>
  %shifted = stablehlo.subtract %z, %max_rows : tensor<64x3xf32>
  %exp = stablehlo.exponential %shifted : tensor<64x3xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<64x3xf32>, tensor<f32>) -> tensor<64xf32>
  %log_sum = stablehlo.log %sum : tensor<64xf32>
  %log_sum_rows = stablehlo.broadcast_in_dim %log_sum, dims = [0] : (tensor<64xf32>) -> tensor<64x3xf32>
  %log_p = stablehlo.subtract %shifted, %log_sum_rows : tensor<64x3xf32>
  %classes = stablehlo.iota dim = 1 : tensor<64x3xi32>
  %label_rows = stablehlo.broadcast_in_dim %labels, dims = [0] : (tensor<64xi32>) -> tensor<64x3xi32>
  %is_label = stablehlo.compare EQ, %classes, %label_rows
      : (tensor<64x3xi32>, tensor<64x3xi32>) -> tensor<64x3xi1>
  %target = stablehlo.convert %is_label : (tensor<64x3xi1>) -> tensor<64x3xf32>
  %picked = stablehlo.multiply %target, %log_p : tensor<64x3xf32>
  %total = stablehlo.reduce(%picked init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<64x3xf32>, tensor<f32>) -> tensor<f32>
  %minus_batch = stablehlo.constant dense<-64.0> : tensor<f32>
  %loss = stablehlo.divide %total, %minus_batch : tensor<f32>
  %is_max = stablehlo.compare EQ, %z, %max_rows : (tensor<64x3xf32>, tensor<64x3xf32>) -> tensor<64x3xi1>
  %is_right = stablehlo.and %is_label, %is_max : tensor<64x3xi1>
  %right = stablehlo.convert %is_right : (tensor<64x3xi1>) -> tensor<64x3xf32>
  %correct = stablehlo.reduce(%right init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<64x3xf32>, tensor<f32>) -> tensor<f32>

  // Backward: dz = (softmax(z) - target) / 64, dh = dz w2ᵀ where h > 0.
  %p = stablehlo.exponential %log_p : tensor<64x3xf32>
  %error = stablehlo.subtract %p, %target : tensor<64x3xf32>
  %batch = stablehlo.constant dense<64.0> : tensor<64x3xf32>
  %dz = stablehlo.divide %error, %batch : tensor<64x3xf32>
  %dw2 = stablehlo.dot_general %h, %dz, contracting_dims = [0] x [0]
      : (tensor<64x64xf32>, tensor<64x3xf32>) -> tensor<64x3xf32>
  %db2 = stablehlo.reduce(%dz init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<64x3xf32>, tensor<f32>) -> tensor<3xf32>
  %dh = stablehlo.dot_general %dz, %w2, contracting_dims = [1] x [1]
      : (tensor<64x3xf32>, tensor<64x3xf32>) -> tensor<64x64xf32>
  %is_on = stablehlo.compare GT, %a, %zeros : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xi1>
  %da = stablehlo.select %is_on, %dh, %zeros : tensor<64x64xi1>, tensor<64x64xf32>
  %dw1 = stablehlo.dot_general %x, %da, contracting_dims = [0] x [0]
      : (tensor<64x768xf32>, tensor<64x64xf32>) -> tensor<768x64xf32>
  %db1 = stablehlo.reduce(%da init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>

  // Update: each weight minus 0.1 times its gradient.
  %rate_w1 = stablehlo.constant dense<0.1> : tensor<768x64xf32>
  %rate_b1 = stablehlo.constant dense<0.1> : tensor<64xf32>
  %rate_w2 = stablehlo.constant dense<0.1> : tensor<64x3xf32>
  %rate_b2 = stablehlo.constant dense<0.1> : tensor<3xf32>
  %step_w1 = stablehlo.multiply %rate_w1, %dw1 : tensor<768x64xf32>
  %step_b1 = stablehlo.multiply %rate_b1, %db1 : tensor<64xf32>
  %step_w2 = stablehlo.multiply %rate_w2, %dw2 : tensor<64x3xf32>
  %step_b2 = stablehlo.multiply %rate_b2, %db2 : tensor<3xf32>
  %new_w1 = stablehlo.subtract %w1, %step_w1 : tensor<768x64xf32>
  %new_b1 = stablehlo.subtract %b1, %step_b1 : tensor<64xf32>
  %new_w2 = stablehlo.subtract %w2, %step_w2 : tensor<64x3xf32>
  %new_b2 = stablehlo.subtract %b2, %step_b2 : tensor<3xf32>
  return %new_w1, %new_b1, %new_w2, %new_b2, %loss, %correct
      : tensor<768x64xf32>, tensor<64xf32>, tensor<64x3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>
}
